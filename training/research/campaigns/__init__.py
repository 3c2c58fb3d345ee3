"""Long runs that try to break what is served and saved."""
