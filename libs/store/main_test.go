package store_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/store/storetest"
)

func TestMain(m *testing.M) {
	storetest.ServeMember()
	await.Parallel(4)
	goleak.VerifyTestMain(m)
}
