package dataflow

import "strings"

// Nearest returns the candidate that word is most likely a misspelling of, or "". Of equally near ones the first wins.
func Nearest(word string, candidates []string) string {
	if len(word) > 64 {
		return ""
	}
	word = strings.ToLower(word)
	best, bestDistance := "", 1+max(1, len(word)/3)
	for _, c := range candidates {
		lower := strings.ToLower(c)
		if lower == word {
			return c
		}
		if d := distance(word, lower); d < bestDistance && d < len(lower) {
			best, bestDistance = c, d
		}
	}
	return best
}

// DidYouMean returns `; did you mean "x"?` for the nearest candidate, or "".
func DidYouMean(word string, candidates []string) string {
	if n := Nearest(word, candidates); n != "" {
		return `; did you mean "` + n + `"?`
	}
	return ""
}

// distance is the number of insertions, deletions, replacements and swaps of neighbours between a and b (optimal string
// alignment), by bytes.
func distance(a, b string) int {
	if d := len(a) - len(b); d > 8 || d < -8 {
		return 9
	}
	older, old, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range old {
		old[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(old[j]+1, row[j-1]+1, old[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], older[j-2]+1)
			}
		}
		older, old, row = old, row, older
	}
	return old[len(b)]
}
