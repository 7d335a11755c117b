"""Plans of a whole queue: when and where every waiting job starts."""
