"""Does the screen of tables find leaks? Real tables, leaks put into them, and rival rules."""
