"""Numbers in files, and the pages made of them."""
