// Package service implements what the API calls (node/api.Backends) over the logs, the worker and the fleet of
// this node: appends and reads of streams, deployments, checkpoints, tokens and the state of the group. Queries over
// tables are statequery's.
//
// One file per backend interface. A service holds no state of its own beside caches.
package service
