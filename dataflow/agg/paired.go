package agg

// pairedNames are the aggregates of pairs of numbers, f(y, x). They have no state of their own: they are computed from the
// number of the pairs and the sums of x, y and their products, which are exact.
var pairedNames = [...]string{
	"corr", "covar_pop", "covar_samp", "regr_avgx", "regr_avgy", "regr_count", "regr_intercept", "regr_r2", "regr_slope", "regr_sxx", "regr_sxy", "regr_syy",
}

// IsPaired reports whether name is that of an aggregate of pairs of numbers, which Lookup does not know.
func IsPaired(name string) bool {
	for _, n := range pairedNames {
		if n == name {
			return true
		}
	}
	return false
}
