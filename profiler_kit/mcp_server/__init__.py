"""A server of the Model Context Protocol: commands of this package as tools for coding assistants.

`tools` derives each tool from the options of a command, `access` limits what a request may name, `calls` runs the command in a
process of its own, `answers` cuts its JSON to a size, and `server` speaks the protocol. Only `server` needs the SDK.
"""
