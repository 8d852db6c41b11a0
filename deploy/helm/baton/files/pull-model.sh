#!/bin/sh
# Pulls a model folder over HTTPS and checks every file's SHA-256. Run by the chart's init container; needs a POSIX shell,
# curl and sha256sum.
#   MANIFEST  first line: address of the folder; then "sha256  name" lines
#   WEIGHTS   no: leave *.safetensors out (a router needs none)
#   TOKEN     bearer token;  ACCESS_KEY_ID, SECRET_ACCESS_KEY, REGION: sign for S3;  SESSION_TOKEN: of temporary keys
# A file with the right checksum is not pulled again; a wrong one is replaced, and stops the pod if it stays wrong.
set -eu
manifest=${MANIFEST:-/etc/baton/model/manifest}
target=${TARGET:-/models}
base=$(head -n 1 "$manifest")

# Secrets go to curl in a file, because other users can read command lines.
umask 077
options=$(mktemp)
trap 'rm -f "$options"' EXIT
if [ -n "${TOKEN:-}" ]; then
  printf 'header = "Authorization: Bearer %s"\n' "$TOKEN" >"$options"
elif [ -n "${ACCESS_KEY_ID:-}" ]; then
  printf 'user = "%s:%s"\naws-sigv4 = "aws:amz:%s:s3"\n' "$ACCESS_KEY_ID" "$SECRET_ACCESS_KEY" "$REGION" >"$options"
  if [ -n "${SESSION_TOKEN:-}" ]; then printf 'header = "x-amz-security-token: %s"\n' "$SESSION_TOKEN" >>"$options"; fi
fi
umask 022

right() { [ -f "$1" ] && [ "$(sha256sum "$1" | cut -d ' ' -f 1)" = "$2" ]; }

tail -n +2 "$manifest" | while read -r sum name; do
  [ -n "$name" ] || continue
  case $name in
    *.safetensors) [ "${WEIGHTS:-yes}" = yes ] || continue ;;
  esac
  if right "$target/$name" "$sum"; then
    echo "$name is there"
    continue
  fi
  mkdir -p "$(dirname "$target/$name")"
  # Pods that share a claim may pull at once: each into a file of its own, moved when it is right.
  part="$target/$name.$(hostname).part"
  if ! curl --config "$options" --fail --location --silent --show-error --retry 5 --retry-connrefused \
    --continue-at - --output "$part" "$base/$name"; then
    echo "can't pull $base/$name, see above" >&2
    exit 1
  fi
  if ! right "$part" "$sum"; then
    rm -f "$part"
    echo "$base/$name does not have the SHA-256 that the chart's values state ($sum)" >&2
    exit 1
  fi
  mv "$part" "$target/$name"
  echo "$name pulled"
done
