"""Plugins that come with the package: one folder for each library."""
