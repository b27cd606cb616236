"""The pages of ``pfdl diagnose``, and what pages are made of."""
