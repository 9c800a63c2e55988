package plan

import (
	"errors"
	"strings"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/agg"
	"github.com/weirdb/weir/dataflow/expr"
	"github.com/weirdb/weir/dataflow/sql"
)

// refusedFunction returns what to write instead of a function that other systems have, or why it is not there; "" for
// all others.
func refusedFunction(name string) string {
	switch name {
	case "unnest", "regexp_split_to_table", "string_to_table", "jsonb_array_elements", "jsonb_array_elements_text", "jsonb_object_keys", "jsonb_each", "jsonb_each_text", "generate_subscripts":
		return "it makes rows: write it in FROM, FROM s, " + name + "(…) AS t(x)"
	case "json_array_elements", "json_array_elements_text", "json_object_keys":
		return "write jsonb" + strings.TrimPrefix(name, "json") + "(…) in FROM"
	case "regexp_matches":
		return "it makes rows of arrays, which is not there yet: write regexp_match(x, pattern) for the first"
	case "generate_series":
		return "it makes rows: write it in FROM of a query, FROM generate_series(1, 10) AS t(x)"
	case "row_number", "rank", "dense_rank", "percent_rank", "cume_dist", "ntile", "lag", "lead", "first_value", "last_value", "nth_value":
		return windowNotYet
	case "tumble", "hop", "session", "tumble_start", "tumble_end":
		return "windows are not there yet; group by date_trunc or date_bin of a time"
	case "json_object_agg", "jsonb_object_agg":
		return "write jsonb_object(array_agg(key), array_agg(value)), of texts"
	case "json_agg", "jsonb_agg", "array_collect", "collect_list":
		return "write array_agg(x)"
	case "group_concat", "listagg":
		return "write string_agg(x, ',')"
	case "median":
		return "write percentile_cont(0.5) WITHIN GROUP (ORDER BY x), or approx_percentile(x, 0.5)"
	case "approx_distinct", "approx_count", "hll":
		return "write approx_count_distinct(x)"
	case "approx_quantile", "quantile", "percentile_approx", "approx_percentile_cont":
		return "write approx_percentile(x, 0.95)"
	case "any_value":
		return "write min(x), or first(x)"
	case "ifnull", "nvl", "isnull":
		return "write coalesce(x, y)"
	case "if", "iif", "decode":
		return "write CASE WHEN … THEN … ELSE … END"
	case "count_if", "countif":
		return "write count(*) FILTER (WHERE …)"
	case "len", "strlen":
		return "write length(x)"
	case "ucase":
		return "write upper(x)"
	case "lcase":
		return "write lower(x)"
	case "charindex", "instr", "locate":
		return "write strpos(text, part)"
	case "getdate", "sysdate", "curdate", "unix_timestamp", "systimestamp":
		return "write now()"
	case "dateadd", "date_add", "date_sub", "timestampadd":
		return "write x + INTERVAL '1 day'"
	case "datediff", "date_diff", "timestampdiff":
		return "write extract(epoch FROM a) - extract(epoch FROM b)"
	case "year", "month", "day", "hour", "minute", "second", "dayofweek":
		return "write extract(" + name + " FROM x)"
	case "regexp_like", "rlike":
		return "write x ~ 'regular expression'"
	case "json_extract", "json_value", "get_json_object":
		return "write payload ->> 'field', or payload #>> '{a,b}'"
	case "date":
		return "write x::date"
	case "nextval", "currval":
		return "there are no sequences: every stream has _shard and _offset"
	case "grouping":
		return "grouping sets are not there yet"
	}
	return ""
}

// isNow reports whether a function gives the time of the row or query.
func isNow(name string) bool {
	switch name {
	case "now", "transaction_timestamp", "statement_timestamp":
		return true
	}
	return false
}

// function binds a call.
func (b *binder) function(c *sql.Call) (expr.Expr, error) {
	name := c.Func.Name
	if c.Over != nil {
		return b.window(c)
	}
	if agg.IsPaired(name) {
		return b.paired(c)
	}
	if agg.IsAggregate(name) {
		return b.aggregate(c)
	}
	if isWindowOnly(name) && b.queries != nil {
		return nil, b.errorf(c.At, "%s(…) is a window function: write %s(…) OVER (PARTITION BY … ORDER BY …)", name, name)
	}
	if name == "timezone" {
		return nil, b.refuse(c.Func.At, "AT TIME ZONE is not there yet: times are in UTC; add or subtract an INTERVAL for another zone")
	}
	if instead := refusedFunction(name); instead != "" {
		return nil, b.refuse(c.Func.At, "%s(…): %s", name, instead)
	}
	switch {
	case c.Star:
		return nil, b.errorf(c.At, "%s(*): only count takes *%s", name, dataflow.DidYouMean(name, []string{"count"}))
	case c.Distinct:
		return nil, b.errorf(c.At, "DISTINCT stands in aggregates only, and %s is not one", name)
	case len(c.OrderBy) > 0:
		return nil, b.errorf(c.OrderBy[0].Expr.Span(), "ORDER BY stands in aggregates only, and %s is not one", name)
	case c.Filter != nil:
		return nil, b.errorf(c.Filter.Span(), "FILTER stands behind aggregates only, and %s is not one", name)
	case isNow(name) && b.noNow != "":
		return nil, b.refuse(c.At, "%s", b.noNow)
	}
	args, err := b.all(c.Args)
	if err != nil {
		return nil, err
	}
	x, err := expr.NewCall(name, args...)
	if err != nil {
		var e *dataflow.Error
		if errors.As(err, &e) && strings.Contains(e.Hint, "docs/sql.md") {
			// Nothing is near among the functions; perhaps an aggregate is.
			if n := dataflow.Nearest(name, agg.Names()); n != "" {
				e.Hint = "did you mean " + n + "?"
			}
		}
		at := c.Func.At
		if i, ok := expr.ArgumentOf(err); ok && i < len(c.Args) {
			at = c.Args[i].Span()
		}
		return nil, b.at(err, at)
	}
	return x, nil
}
