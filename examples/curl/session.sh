#!/usr/bin/env bash
# A whole turn with a tool call, spoken with curl alone: Connect's streaming protocol over HTTP/2, JSON in envelopes of
# one flag byte and four length bytes. The tool runs in this script.
#
# usage: session.sh [URL]     (default http://localhost:8080)
set -euo pipefail
export LC_ALL=C # lengths are in bytes
url=${1:-http://localhost:8080}
tmp=$(mktemp -d)
mkfifo "$tmp/up" "$tmp/down"

# -T . sends standard input as it comes.
curl -sS -N --http2-prior-knowledge --max-time 60 -X POST -T . \
  -H 'Content-Type: application/connect+json' -H 'Connect-Protocol-Version: 1' \
  "$url/agentd.v1.Agentd/Run" <"$tmp/up" >"$tmp/down" 2>"$tmp/errors" &
curl=$!
exec 3>"$tmp/up" 4<"$tmp/down"

# send JSON: one message in its envelope, in one write.
send() {
  local n=${#1}
  printf "\\x00\\x$(printf %02x $((n >> 24 & 255)))\\x$(printf %02x $((n >> 16 & 255)))\\x$(printf %02x $((n >> 8 & 255)))\\x$(printf %02x $((n & 255)))%s" "$1" >&3
}

# byte: sets value; fails at the end of the stream. A NUL is read as nothing.
byte() {
  local char
  IFS= read -r -d '' -n 1 char <&4 || return 1
  printf -v value %d "'$char"
  value=$((value & 255))
}

# receive: sets flags and message; fails at the end of the stream. It starts no process, so that it keeps up with the server.
receive() {
  local i n=0
  byte || return 1
  flags=$value
  for i in 1 2 3 4; do
    byte || return 1
    n=$((n << 8 | value))
  done
  IFS= read -r -N "$n" message <&4
}

# field NAME: a string of the message, as JSON wrote it.
field() { sed -n "s/.*\"$1\": *\"\\(\\([^\"\\\\]\\|\\\\.\\)*\\)\".*/\\1/p" <<<"$message"; }

send '{"execute": {
  "userPrompt": "Say hi to Alice",
  "tools": [{"name": "greet", "description": "Returns a greeting",
    "inputSchema": "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"}},\"required\":[\"name\"]}"}],
  "agent": {"name": "greeter", "llm": {"model": "scripted/demo", "instruction": "Greet people.", "toolNames": ["greet"]}}
}}'

# Some versions of curl read an answer only while they have something to send, so the heart beats fast.
(while send '{"heartbeat": {}}'; do sleep 0.2; done) 2>/dev/null &
heart=$!
trap 'kill $heart $curl 2>/dev/null || true; cat "$tmp/errors" >&2; rm -rf "$tmp"' EXIT

while receive; do
  if [ "$flags" -ne 0 ]; then
    break # the end of the stream
  fi
  case $message in
    '{"heartbeat"'*) ;;
    '{"toolCall"'*)
      echo "$message"
      name=$(field toolInput | sed 's/.*: *\\"\(.*\)\\".*/\1/')
      send "{\"toolCallResponse\": {\"toolCallId\": \"$(field toolCallId)\", \"output\": \"Hello, $name, from process $$!\"}}"
      ;;
    '{"end"'*)
      echo "$message"
      kill $heart
      exec 3>&- # nothing more to say
      ;;
    *) echo "$message" ;;
  esac
done
