import assert from "node:assert/strict";
import { mock, test } from "node:test";
import { spaced } from "../web/parts/follow.js";

test("what changes all the time is read seldom, and once after the last change", () => {
	mock.timers.enable({ apis: ["setTimeout", "Date"] });
	const at = [];
	const changed = spaced(() => at.push(Date.now()), 5000);
	for (let now = 0; now < 30000; now += 100) {
		if (now < 12000) changed();
		mock.timers.tick(100);
	}
	assert.deepEqual(at, [500, 5500, 10500, 15500]);
	changed();
	mock.timers.tick(500);
	assert.equal(at.length, 5, "a single change is read soon");
	changed();
	changed.end();
	mock.timers.tick(60000);
	assert.equal(at.length, 5, "nothing is read after the end");
	mock.timers.reset();
});
