"""The console: pages in a browser that show what the role that logged in may see."""
