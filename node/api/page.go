package api

import (
	"encoding/base64"
	"sort"
	"strings"

	"github.com/weirdb/weir/dataflow"
)

// maxListPage is the most things that one page of a list has, and the default.
const maxListPage = 1000

// pageOf cuts one page from things sorted by name. The token is the list's name and the last name of the page before, so a
// page after things came and went neither repeats nor misses any that stayed.
func pageOf[T any](list string, all []T, name func(T) string, size int32, token string) (page []T, next string, err error) {
	if size < 0 {
		return nil, "", invalid("page_size", "%d is negative", size)
	}
	if size == 0 || size > maxListPage {
		size = maxListPage
	}
	if token != "" {
		after, err := parseListToken(token, list)
		if err != nil {
			return nil, "", err
		}
		all = all[sort.Search(len(all), func(i int) bool { return name(all[i]) > after }):]
	}
	if len(all) <= int(size) {
		return all, "", nil
	}
	return all[:size], listToken(list, name(all[size-1])), nil
}

var listTokens = base64.RawURLEncoding.Strict()

func listToken(list, after string) string {
	return listTokens.EncodeToString([]byte(list + "/" + after))
}

// parseListToken returns the name that a page begins after.
func parseListToken(token, list string) (after string, err error) {
	text, err := listTokens.DecodeString(token)
	after, ok := strings.CutPrefix(string(text), list+"/")
	if err != nil || !ok || !dataflow.ValidName(after) {
		return "", wrong(dataflow.ReasonTokenInvalid, "page_token", "it is damaged, or belongs to another list")
	}
	return after, nil
}
