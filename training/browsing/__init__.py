"""The parts of the page that searches an export."""
