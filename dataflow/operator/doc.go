// Package operator runs the parts of a plan over batches: the stateless chain before an exchange, the pre-combining of
// rows that share a key, and the finishing of state into visible rows. It is pure: no I/O, no clock, no goroutine.
//
//	ChainRunner  filter, project, unnest: a source batch → the stage's key columns and aggregate arguments
//	PreAgg       rows of one batch → one partial accumulator per distinct key
//	Finalizer    (key, accumulator) → the row that users and downstream stages see
//
// # Rules
//
//	O1  A source row counts as a whole or not at all. If an expression fails for it, or for any row that was unnested
//	    from it, the row and all its descendants are left out and it is reported once. So what a view holds is a
//	    function of the rows that were not left out, whatever the batches were.
//	O2  A row that is to be left out is never evaluated.
//	O3  A row's weight, append time and stream offset follow it through the chain.
//	O4  Limits are checked per row (MaxKeyBytes, agg.Layout.MaxArgBytes), so that they are failures of a row like any
//	    other, and no order of rows makes an accumulator outgrow MaxRowBytes.
//	O5  Memory is bounded by the piece. A batch whose values would take more than expr.BatchMemory is refused as a whole,
//	    and its caller cuts it (batch.Pieces); only a row alone is judged, against expr.MaxRowMemory. So which rows fail does
//	    not depend on how they were batched (P10).
package operator
