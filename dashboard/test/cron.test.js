import assert from "node:assert/strict";
import { test } from "node:test";
import { dueTimes } from "../web/parts/cron.js";

const due = (cron, zone, from, days) => dueTimes(cron, zone, Date.parse(from), Date.parse(from) + days * 86400e3)?.map((t) => new Date(t).toISOString().slice(0, 16));

test("an expression is due in its time zone", () => {
	assert.deepEqual(due("0 4 * * *", "Europe/Berlin", "2026-11-29T00:00Z", 2), ["2026-11-29T03:00", "2026-11-30T03:00"]);
	assert.deepEqual(due("30 18 * * fri,sat", "", "2026-11-23T00:00Z", 7), ["2026-11-27T18:30", "2026-11-28T18:30"]);
	assert.deepEqual(due("0 0-4/2 1 jan *", "UTC", "2027-01-01T00:00Z", 1), ["2027-01-01T00:00", "2027-01-01T02:00", "2027-01-01T04:00"]);
	assert.equal(due("*/15 * * * *", "UTC", "2026-11-29T00:00Z", 7)?.length, 672);
});

test("both day fields restrict, or either when both are given", () => {
	assert.deepEqual(due("0 0 13 * 5", "UTC", "2026-11-10T00:00Z", 7), ["2026-11-13T00:00"]);
	assert.deepEqual(due("0 0 14 * 5", "UTC", "2026-11-10T00:00Z", 7), ["2026-11-13T00:00", "2026-11-14T00:00"]);
});

test("clocks that change", () => {
	assert.deepEqual(due("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00Z", 1), ["2026-03-29T01:00"]); // 2:30 does not exist
	assert.deepEqual(due("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00Z", 1), ["2026-10-25T00:30"]); // 2:30 exists twice
	assert.equal(due("30 * * * *", "Europe/Berlin", "2026-10-24T22:00Z", 1)?.length, 24);
	assert.equal(due("30 */1 * * *", "Europe/Berlin", "2026-03-28T23:00Z", 1)?.length, 24);
});

test("what is not an expression", () => {
	for (const bad of ["", "0 4 * *", "60 * * * *", "0 4 * * 7", "a * * * *", "*/0 * * * *", "5-1 * * * *", "@daily"]) assert.equal(due(bad, "UTC", "2026-11-29T00:00Z", 1), undefined, bad);
	assert.equal(due("0 4 * * *", "Mars/Base", "2026-11-29T00:00Z", 1), undefined);
});
