#!/usr/bin/env bash
# The built attnctl as a shell sees it, without a server. Usage: attnctl_cli_test.sh ATTNCTL
set -uo pipefail
attnctl=$1
failed=0
expect() { # expect NAME CONDITION...
  local name=$1
  shift
  if ! "$@"; then
    echo "failed: $name"
    failed=1
  fi
}
code() { "$attnctl" "$@" >/dev/null 2>&1; echo $?; }
has() { grep -qF -- "$2" <<<"$1"; }
picture() { "$attnctl" mask --prefix 4 --window 4 --len 10 --layer "$1"; }

expect "help teaches" has "$("$attnctl" --help)" "parameters, cache, FLOP"
expect "it says its version" has "$("$attnctl" --version)" "attnctl "
expect "help exits 0" test "$(code --help)" = 0
expect "an unknown command exits 2" test "$(code plam)" = 2
expect "and names the nearest" has "$("$attnctl" plam 2>&1)" "'plan'"
expect "an unknown flag exits 2" test "$(code plan --modl x)" = 2
expect "plan of an unknown model is exit 2" test "$(code plan --model builtin:foo)" = 2
expect "a missing file of a flag is exit 2" test "$(code info --tls_ca /nonexistent)" = 2
expect "bench with a file that cannot be written is exit 2" test "$(code bench --csv /nonexistent/x.csv)" = 2
expect "an error is one line, also with TLS" test "$("$attnctl" info --tls --target 127.0.0.1:1 --connect_ms 200 2>&1 | wc -l)" = 1
expect "no server hints at TLS" has "$("$attnctl" info --target 127.0.0.1:1 --connect_ms 200 2>&1)" "--tls_ca"
expect "no server is one line and exit 1" test "$(code health --target 127.0.0.1:1 --connect_ms 200)" = 1
session=$("$attnctl" session --help)
for example in "export chat-7" "import chat-7" "fork chat-7" "move chat-7 --to"; do
  expect "session teaches to $example" has "$session" "attnctl session $example"
done
for words in "" "export" "export a" "import" "fork" "fork a b" "move a" "import f --to x" "export a f --id b" "export a -" "import -" "mve a"; do
  expect "session $words exits 2" test "$(code session $words)" = 2
done
expect "drain teaches" has "$("$attnctl" drain --help)" "attnctl drain 10.0.0.7:8470 --via balancer:8470"
for words in "" "a" "--via b" "a b --via c" "a --target b --via c"; do
  expect "drain $words exits 2" test "$(code drain $words)" = 2
done
expect "without a server session exits 1" test "$(code session import f --target 127.0.0.1:1 --connect_ms 200)" = 1
expect "top teaches" has "$("$attnctl" top --help)" "attnctl top 10.0.0.1:9470"
expect "top without a server is exit 1" test "$(code top 127.0.0.1:1 --once)" = 1
expect "top --once --json is JSON, also without a server" python3 -c '
import json,sys; assert json.loads(sys.argv[1])["servers"][0]["reachable"] is False' "$("$attnctl" top 127.0.0.1:1 --once --json 2>/dev/null)"
expect "top with a wrong address is exit 2" test "$(code top 127.0.0.1:x)" = 2
expect "bench teaches" has "$("$attnctl" bench --help)" "counts from when it was due"
expect "bench with a wrong mode is exit 2" test "$(code bench --mode x)" = 2
expect "without a server bench exits 1" test "$(code bench --target 127.0.0.1:1 --connect_ms 200)" = 1
plan=$("$attnctl" plan --model builtin:apex1-large --context 131072)
for figure in 32,768 2,048 1,024 "8 GiB" "3.1 %"; do
  expect "plan prints $figure" has "$plan" "$figure"
done
expect "plan --json is JSON" python3 -c 'import json,sys; json.loads(sys.argv[1])' "$("$attnctl" plan --json)"
local=$(picture 0) global=$(picture 5)
expect "ten rows and a header" test "$(grep -cE '^ +[0-9]+:' <<<"$local")" = 10
expect "a local row sees its window" has "$(grep -E '^ +9:' <<<"$local")" "·  ·  ·  ·  ·  ·  █  █  █  █"
expect "a prefix row sees the prefix" has "$(grep -E '^ +0:' <<<"$local")" "█  █  █  █  ·  ·  ·  ·  ·  ·"
expect "a global row sees all before it" has "$(grep -E '^ +9:' <<<"$global")" "█  █  █  █  █  █  █  █  █  █"
exit $failed
