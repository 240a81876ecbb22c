//! Linux namespaces, as an ordinary user or as root.
