"""Every system on real graphs, as one page: `halobench study`."""
