package weir

import "strings"

// pipelineOf returns the pipeline that a query reads, so that its session token can be sent along: the name before the
// dot after the first FROM or JOIN that stands outside of quotes and comments. "" when it finds none; then the read has no
// session, and the server says what is wrong with the text.
func pipelineOf(sql string) string {
	afterFrom := false
	for word, rest := nextWord(sql); word != ""; word, rest = nextWord(rest) {
		if afterFrom {
			if dot, _ := nextWord(rest); dot == "." {
				return word
			}
		}
		afterFrom = word == "from" || word == "join"
	}
	return ""
}

// nextWord returns the next identifier (lower case), quoted part or single character of a SQL text, and what follows.
func nextWord(s string) (word, rest string) {
	for {
		s = strings.TrimLeft(s, " \t\r\n\f\v")
		switch {
		case s == "":
			return "", ""
		case strings.HasPrefix(s, "--"):
			_, s, _ = strings.Cut(s, "\n")
			continue
		case strings.HasPrefix(s, "/*"):
			_, s, _ = strings.Cut(s[2:], "*/")
			continue
		}
		break
	}
	switch c := s[0]; {
	case c == '\'' || c == '"':
		end := strings.IndexByte(s[1:], c)
		if end < 0 {
			return s, ""
		}
		if c == '"' {
			return s[1 : end+1], s[end+2:]
		}
		return s[:end+2], s[end+2:]
	case isWord(c):
		n := 1
		for n < len(s) && isWord(s[n]) {
			n++
		}
		return strings.ToLower(s[:n]), s[n:]
	}
	return s[:1], s[1:]
}

func isWord(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c >= 0x80
}
