#!/bin/sh
# The greeting for {"name": "..."}.
name=$(sed -n 's/.*"name" *: *"\([^"]*\)".*/\1/p')
[ -n "$name" ] || { echo 'no "name" among the arguments' >&2; exit 1; }
echo "Hello, $name! Greetings from process $$."
