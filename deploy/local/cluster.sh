#!/usr/bin/env bash
# Three nodes of one group on this machine, or as many as NODES says, for trying things: make cluster. Ctrl-C stops them; what
# they hold stays in weir-cluster/ and is there at the next start.
set -euo pipefail
cd "$(dirname "$0")/../.."
weir=${WEIR:-bin/weir}
dir=${DIR:-weir-cluster}
nodes=${NODES:-3}
base=${PORT:-7710} # node i has base+10*(i-1) for HTTP, and the next ones for gRPC and for the other nodes

addrs() { # the addresses of all nodes, $1 behind their first port
	local i list=
	for ((i = 0; i < nodes; i++)); do list+=,127.0.0.1:$((base + 10 * i + $1)); done
	echo "${list#,}"
}
join=$(addrs 2)

node() { # the command that runs node $1
	local p=$((base + 10 * ($1 - 1)))
	echo "$weir server --node-id n$1 --data-dir $dir/n$1 --http-addr 127.0.0.1:$p --grpc-addr 127.0.0.1:$((p + 1)) --peer-addr 127.0.0.1:$((p + 2)) --join $join --bootstrap-expect $nodes"
}

pids=()
stop() {
	trap - EXIT INT TERM
	kill "${pids[@]}" 2>/dev/null || true
	wait || true
}
trap stop EXIT INT TERM
mkdir -p "$dir"
for ((i = 1; i <= nodes; i++)); do
	$(node "$i") >>"$dir/n$i.log" 2>&1 &
	pids+=($!)
done
addr=$(addrs 1)
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
