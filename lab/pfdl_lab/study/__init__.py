"""The study of images: many small trainings on paired seeds."""
