"""How a method is trained and scored so that numbers can be compared."""
