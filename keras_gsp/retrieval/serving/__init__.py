"""SavedModels that embed, search and explain."""
