package templateops

import (
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
)

func are(n int, what string) string {
	if n == 1 {
		return "1 " + what + " is"
	}
	return txn.Count(n, what) + " are"
}
