"""One file per library whose connections a guard can use; the file has the library's name and `open_link`."""
