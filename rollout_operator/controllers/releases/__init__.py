"""Make releases happen: gates, bakes and health decide when a version is written where."""
