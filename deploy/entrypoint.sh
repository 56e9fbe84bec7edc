#!/bin/sh
# Runs a command with the secrets that Prefect can only read from its environment.
# A file /run/secrets/prefect_api_auth_string becomes PREFECT_API_AUTH_STRING, and so on;
# secrets of other names stay files.
set -eu
umask 0077
ulimit -c 0
for name in PREFECT_API_AUTH_STRING PREFECT_SERVER_API_AUTH_STRING PREFECT_SERVER_DATABASE_PASSWORD
do
    file=/run/secrets/$(printf %s "$name" | tr '[:upper:]' '[:lower:]')
    if [ -e "$file" ]; then
        value=$(cat "$file")  # a file that cannot be read stops the start
        export "$name=$value"
    fi
done
exec "$@"
