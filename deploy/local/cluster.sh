#!/usr/bin/env bash
# Three nodes of one group on this machine, for trying things: make cluster. Ctrl-C stops them; what they hold stays in
# weir-cluster/ and is there at the next start.
set -euo pipefail
cd "$(dirname "$0")/../.."
weir=${WEIR:-bin/weir}
dir=${DIR:-weir-cluster}
base=${PORT:-7710} # node i has base+10*(i-1) for HTTP, and the next ones for gRPC and for the other nodes
join=127.0.0.1:$((base + 2)),127.0.0.1:$((base + 12)),127.0.0.1:$((base + 22))

node() { # the command that runs node $1
	local p=$((base + 10 * ($1 - 1)))
	echo "$weir server --node-id n$1 --data-dir $dir/n$1 --http-addr 127.0.0.1:$p --grpc-addr 127.0.0.1:$((p + 1)) --peer-addr 127.0.0.1:$((p + 2)) --join $join --bootstrap-expect 3"
}

pids=()
stop() {
	trap - EXIT INT TERM
	kill "${pids[@]}" 2>/dev/null || true
	wait || true
}
trap stop EXIT INT TERM
mkdir -p "$dir"
for i in 1 2 3; do
	$(node "$i") >>"$dir/n$i.log" 2>&1 &
	pids+=($!)
done
addr=127.0.0.1:$((base + 1)),127.0.0.1:$((base + 11)),127.0.0.1:$((base + 21))
for _ in $(seq 150); do
	if status=$("$weir" cluster status --addr "$addr" 2>/dev/null) && ! grep -q "does not answer" <<<"$status"; then break; fi
	sleep 0.2
done
"$weir" cluster status --addr "$addr"
cat <<EOF

The logs are $dir/n*.log. In another terminal:

  export WEIR_ADDR=$addr
  $weir cluster status --watch

  kill -9 ${pids[1]}                     node n2 dies; the others go on
  $(node 2)
                                       it comes back and catches up
EOF
wait
