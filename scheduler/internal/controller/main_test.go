package controller_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/orreryhq/orrery/libs/await"
)

func TestMain(m *testing.M) {
	await.Parallel(4)
	goleak.VerifyTestMain(m)
}
