package server

import (
	"strconv"
	"testing"
)

func TestOnesManyUploadsLeaveRoomForOthers(t *testing.T) {
	var u uploads
	var leave []func()
	for range maxUploadsEach {
		done, ok := u.enter("eve")
		if !ok {
			t.Fatal("one of the first was refused")
		}
		leave = append(leave, done)
	}
	if _, ok := u.enter("eve"); ok {
		t.Error("one more was let in")
	}
	done, ok := u.enter("ada")
	if !ok {
		t.Fatal("another user waits for eve's")
	}
	done()
	for _, done := range leave {
		done()
	}
	if _, ok := u.enter("eve"); !ok || u.all != 1 || len(u.by) != 1 {
		t.Errorf("%d are counted of %d users", u.all, len(u.by))
	}
}

func TestUsersWhoTakeAllTheyGetLeaveRoomForTheNext(t *testing.T) {
	var u uploads
	for n := range 20 {
		user := strconv.Itoa(n)
		if _, ok := u.enter(user); !ok {
			t.Fatalf("user %d finds %d of %d uploads taken", n, u.all, maxUploads)
		}
		for ok := true; ok; {
			_, ok = u.enter(user)
		}
	}
}

func TestUploadsAreBoundedInAll(t *testing.T) {
	var u uploads
	for i := range maxUploads {
		if _, ok := u.enter(string(rune('a' + i))); !ok {
			t.Fatalf("%d were let in", i)
		}
	}
	if _, ok := u.enter("one more"); ok {
		t.Error("one more was let in")
	}
}
