package api

import (
	"encoding/base64"
	"sort"
)

// maxListPage is the most things that one page of a list has, and the default.
const maxListPage = 1000

// pageOf cuts one page from things sorted by name. The token is the last name of the page before, so a page after
// things came and went neither repeats nor misses any that stayed.
func pageOf[T any](all []T, name func(T) string, size int32, token string) (page []T, next string, err error) {
	if size < 0 {
		return nil, "", invalid("page_size", "%d is negative", size)
	}
	if size == 0 || size > maxListPage {
		size = maxListPage
	}
	if token != "" {
		after, err := base64.RawURLEncoding.DecodeString(token)
		if err != nil || len(after) == 0 {
			return nil, "", invalid("page_token", "not a token of this list")
		}
		all = all[sort.Search(len(all), func(i int) bool { return name(all[i]) > string(after) }):]
	}
	if len(all) <= int(size) {
		return all, "", nil
	}
	return all[:size], base64.RawURLEncoding.EncodeToString([]byte(name(all[size-1]))), nil
}
