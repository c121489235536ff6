package progress

import "strings"

// barWidth is the length of a Bar without its brackets.
const barWidth = 20

// Bar returns a bar such as [#####---------------] for done of total.
func Bar(done, total int64) string {
	filled := int64(barWidth)
	if total > 0 {
		filled = min(max(done, 0), total) * barWidth / total
	}
	return "[" + strings.Repeat("#", int(filled)) + strings.Repeat("-", int(barWidth-filled)) + "]"
}
