"""Files and folders that are whole or absent, whatever happens."""
