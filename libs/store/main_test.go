package store_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/orreryhq/orrery/libs/store/storetest"
)

func TestMain(m *testing.M) {
	storetest.ServeMember()
	goleak.VerifyTestMain(m)
}
