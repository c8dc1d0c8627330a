/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The numbers of PROTOCOL.md against the code: limits and times in its prose, each in its section,
 * and the tables that are not generated.
 */
#include "agent_pvt.h"
#include "client_pvt.h"
#include "document.h"
#include "kvr_cookie.h"
#include "kvr_hash.h"
#include "kvr_hints.h"
#include "kvr_test.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MS	   1000u    /* microseconds */
#define S	   1000000u /* microseconds */
#define WIRE(type) sizeof(struct kvr_wire_##type)

static char *doc;

/* From the heading to the next one of its level; empty when there is none. Good until the next
 * call. */
static const char *read_section(const char *heading)
{
	static char text[65536];
	char line[40], next[8] = "\n";
	const size_t level = strspn(heading, "#");
	const char *begin, *end;

	snprintf(line, sizeof(line), "\n%s ", heading);
	begin = strstr(doc, line);
	if (begin == NULL)
		return "";
	memcpy(next + 1, heading, level);
	memcpy(next + 1 + level, " ", 2);
	end = strstr(begin + 1, next);
	snprintf(text, sizeof(text), "%.*s", end != NULL ? (int)(end - begin) : -1, begin);
	return text;
}

static bool is_in_section(const char *heading, const char *text)
{
	if (strstr(read_section(heading), text) != NULL)
		return true;
	fprintf(stderr, "not in section %s: %s\n", heading, text);
	return false;
}

/* A number as prose has it: groups of three digits above 9,999, or from 1,000 on where @p sep. */
static size_t format_number(char *out, unsigned long v, bool sep)
{
	char digits[24];
	const int n = snprintf(digits, sizeof(digits), "%lu", v);
	size_t len = 0;

	for (int i = 0; i < n; i++) {
		if (sep && i > 0 && (n - i) % 3 == 0)
			out[len++] = ',';
		out[len++] = digits[i];
	}
	return len;
}

/* In the text # stands for the next number, @ for one with its digits in groups. */
static void fill_numbers(const char *text, const unsigned long v[], char *out)
{
	size_t len = 0, k = 0;

	for (; *text != '\0'; text++)
		if (*text == '#' || *text == '@')
			len += format_number(out + len, v[k++], *text == '@');
		else
			out[len++] = *text;
	out[len] = '\0';
}

static const struct {
	const char *heading, *text;
	unsigned long v[5];
} prose[] = {
	{"## 1.", "at most @ body bytes", {KVR_WIRE_MAX_MESSAGE}},
	{"## 1.", "one UDP datagram: # bytes of header", {WIRE(hdr)}},
	{"## 2.", "one port, # by default", {KVR_WIRE_PORT}},
	{"## 2.", "exactly # + `frag_len`", {WIRE(hdr)}},
	{"## 2.",
	 "Legal values are # to #; 0 in `client_frame` means #",
	 {KVR_WIRE_LEAST_MAX_FRAME, KVR_WIRE_MAX_FRAME, KVR_WIRE_DEF_FRAME}},
	{"## 2.", "a sender uses #.", {KVR_WIRE_DEF_FRAME}},
	{"## 3.", "`version` | # |", {KVR_WIRE_VERSION}},
	{"## 3.", "payload shorter than # bytes", {WIRE(hdr)}},
	{"## 3.", "above # or not # + `frag_len`", {KVR_WIRE_MAX_FRAME, WIRE(hdr)}},
	{"## 4.",
	 "at least #, at most\n  #",
	 {KVR_WIRE_MIN_FRAGMENT, KVR_WIRE_MAX_FRAME - WIRE(hdr)}},
	{"## 4.",
	 "of the message: #, #, # or # |",
	 {KVR_ROUTE, KVR_DISPATCH, KVR_RESPONSE, KVR_POTENTIAL_LOADS}},
	{"## 4.", "at most # frames of one message each millisecond", {CLIENT_PACE_FRAMES}},
	{"## 4.",
	 "retransmission (# ms, doubling to # s)",
	 {CLIENT_ROUTE_US / MS, CLIENT_ROUTE_MAX_US / S}},
	{"### 5.1", "(# ms, doubling to # s)", {CLIENT_CONNECT_US / MS, CLIENT_CONNECT_MAX_US / S}},
	{"### 5.1", "up to # bytes of frame", {KVR_WIRE_DEF_FRAME}},
	{"### 5.1", "less than # bytes of UDP payload", {WIRE(hdr) + WIRE(connected)}},
	{"### 5.1", "POOL, at most #, each", {KVR_HINTS_MAX_POOLS}},
	{"### 5.1", "`name_len` | 1..#", {KVR_HINT_MAX_POOL}},
	{"### 6.1",
	 "`n_hashes` <= @, `n_tokens` <= @, `isl` <= @, `hints_len` <= @, `body_len` <= @ |",
	 {KVR_WIRE_MAX_HASHES, KVR_WIRE_MAX_TOKENS, KVR_WIRE_MAX_TOKENS, KVR_WIRE_MAX_HINTS,
	  KVR_WIRE_MAX_BODY}},
	{"### 6.1", "0 or # to # | InvalidRequest", {KVR_WIRE_LEAST_MAX_FRAME, KVR_WIRE_MAX_FRAME}},
	{"### 6.3",
	 "| SENT | # ms, doubling to # s,",
	 {CLIENT_ROUTE_US / MS, CLIENT_ROUTE_MAX_US / S}},
	{"### 6.3",
	 "| WAIT | # ms, doubling to # s (# s while the PROBE before is unanswered),",
	 {CLIENT_PROBE_US / MS, CLIENT_PROBE_MAX_US / S, CLIENT_NO_ANSWER_US / S}},
	{"### 6.3", "nothing heard for # s", {KVR_WIRE_CLIENT_SILENCE_S}},
	{"### 6.3",
	 "| CANCELLING | # ms, doubling to # s | CANCEL again, # times",
	 {CLIENT_CANCEL_US / MS, CLIENT_CANCEL_MAX_US / S, CLIENT_CANCEL_TRIES}},
	{"### 6.3", "starts again at # ms only", {CLIENT_PROBE_US / MS}},
	{"### 6.3",
	 "asks again after at most # s (and 10 % of jitter), gives up after # s",
	 {CLIENT_PROBE_MAX_US / S, KVR_WIRE_CLIENT_SILENCE_S}},
	{"### 6.3", "agents keep items for # s", {KVR_WIRE_ITEMS_KEPT_S}},
	{"### 6.3", "routers relay and remember for # s", {KVR_WIRE_LINGER_S}},
	{"### 6.3", "later than # s after", {KVR_WIRE_LINGER_S}},
	{"### 6.3",
	 "SENT; gap = # ms; heard = now; send ROUTE; again(# s)",
	 {CLIENT_ROUTE_US / MS, CLIENT_ROUTE_MAX_US / S}},
	{"### 6.3",
	 "news:      gap = # ms; again(# s)",
	 {CLIENT_PROBE_US / MS, CLIENT_PROBE_MAX_US / S}},
	{"### 6.3",
	 "gap = # ms; send CANCEL; again(# s)",
	 {CLIENT_CANCEL_US / MS, CLIENT_CANCEL_MAX_US / S}},
	{"### 6.3", "if CANCELLING:             # sent", {CLIENT_CANCEL_TRIES}},
	{"### 6.3", "now - heard > # s", {KVR_WIRE_CLIENT_SILENCE_S}},
	{"### 6.4", "a window of # is enough", {CLIENT_HOLD_ITEMS}},
	{"### 6.4",
	 "# ms after an item or when # are not acknowledged (# before",
	 {CLIENT_ACK_US / MS, CLIENT_ACK_ITEMS, CLIENT_ACK_FIRST}},
	{"### 6.4", "retransmits them (# s)", {KVR_WIRE_ITEMS_KEPT_S}},
	{"### 6.5",
	 "(# ms, doubling to # s, # times at most)",
	 {CLIENT_CANCEL_US / MS, CLIENT_CANCEL_MAX_US / S, CLIENT_CANCEL_TRIES}},
	{"### 6.5", "retransmit it for # s", {KVR_WIRE_ITEMS_KEPT_S}},
	{"### 7.1", "never the last @", {AGENT_OVER_KEPT}},
	{"### 7.1", "is rejected with code #", {AGENT_CODE_NOT_OURS}},
	{"### 7.2",
	 "(# ms, doubling to # s, counted",
	 {AGENT_REPEAT_US / MS, AGENT_REPEAT_MAX_US / S}},
	{"### 7.2",
	 "keeps at most #\nunacknowledged (with UNPROVEN in the DISPATCH: #,",
	 {AGENT_WINDOW_ITEMS, KVR_WIRE_UNPROVEN_ITEMS}},
	{"### 7.2", "gives up # s after", {KVR_WIRE_ITEMS_KEPT_S}},
	{"### 7.2",
	 "(# ms, doubling to # s, at most # s) until PROGRESS_ACK",
	 {AGENT_REPEAT_US / MS, AGENT_REPEAT_MAX_US / S, KVR_WIRE_ITEMS_KEPT_S}},
	{"### 7.2", "*window* is #, or # with", {AGENT_WINDOW_ITEMS, KVR_WIRE_UNPROVEN_ITEMS}},
	{"### 7.2", "progress = now; gap = # ms; arm", {AGENT_REPEAT_US / MS}},
	{"### 7.2", "now - progress > # s", {AGENT_GIVE_UP_US / S}},
	{"### 7.2", "gap = min(2 * gap, # s)", {AGENT_REPEAT_MAX_US / S}},
	{"### 7.4", "or # s have: longer", {KVR_WIRE_LINGER_S}},
	{"### 7.4", "after # s without", {KVR_WIRE_CLIENT_SILENCE_S}},
	{"### 7.5", "has not ended # s (and up", {KVR_WIRE_LINGER_S}},
	{"### 9.1", "(# ms, doubling to # s)", {AGENT_HELLO_US / MS, AGENT_HELLO_MAX_US / S}},
	{"### 9.1", "tries again every # s", {AGENT_REFUSED_US / S}},
	{"### 9.3",
	 "(# ms, doubling to # s, at most # times)",
	 {AGENT_GOODBYE_US / MS, AGENT_GOODBYE_MAX_US / S, AGENT_GOODBYE_TRIES}},
	{"## 10.", "wait # ms, then", {AGENT_KV_BUSY_US / MS}},
	{"## 10.",
	 "when # ms (doubling to # s) pass",
	 {AGENT_KV_REPEAT_US / MS, AGENT_KV_REPEAT_MAX_US / S}},
	{"## 10.",
	 "# KiB of one rank at most; # frames of a dump",
	 {AGENT_KV_WINDOW_BYTES / 1024, AGENT_DUMP_WINDOW}},
	{"## 10.", "when # ms have passed without progress", {AGENT_KV_STALE_US / MS}},
	{"## 10.", "(2^# + a rising number", {__builtin_ctzll(AGENT_DUMP_ID)}},
	{"### 11.1",
	 "# ms, doubling to # s, at most # s, until SESSION_RELEASED",
	 {CLIENT_RELEASE_US / MS, CLIENT_RELEASE_MAX_US / S, CLIENT_RELEASE_LIMIT_US / S}},
	{"### 11.2", "OPEN: 1..@;", {KVR_WIRE_SESSION_MAX_S + KVR_WIRE_SESSION_GRACE_S}},
	{"### 11.2", "`id_len` | 1..#", {KVR_HINT_MAX_SESSION}},
	{"### 11.2", "timeout and # s more", {KVR_WIRE_SESSION_GRACE_S}},
	{"### 6.1", "with BOOK or AWAY the message has at least # bytes", {KVR_WIRE_ASKING_LEAST}},
	{"## 8.",
	 "timeout in s (1..@; 0xffffffff: not given, #)",
	 {KVR_WIRE_SESSION_MAX_S, KVR_WIRE_SESSION_DEF_S}},
	{"## 8.", "the id has 1 to # bytes", {KVR_HINT_MAX_SESSION}},
	{"## 8.", "MM has at most # hashes", {KVR_HINT_MAX_MM}},
	{"## 8.",
	 "action` is\n# none, # open, # close",
	 {KVR_ACTION_NONE, KVR_ACTION_OPEN, KVR_ACTION_CLOSE}},
	{"## 8.", "bytes of the body, 1 to @", {KVR_WIRE_MAX_AWAY}},
	{"## 8.", "u8[#] token, random", {KVR_WIRE_TOKEN}},
	{"## 19.", "rejects the DISPATCH with the code #", {KVR_WIRE_NO_BODIES}},
	{"## 19.",
	 "tries again (# ms, doubling to # ms) while",
	 {CLIENT_AGAIN_US / MS, CLIENT_AGAIN_MAX_US / MS}},
	{"### 12.1", "wait # s more for items", {CLIENT_ENDED_US / S}},
	{"### 12.1", "HELLO again after # s", {AGENT_REFUSED_US / S}},
	{"## 13.", "`seed = #`", {KVR_HASH_SEED}},
	{"## 15.", "sends at most # frames of items before", {KVR_WIRE_UNPROVEN_ITEMS}},
	{"### 6.4", "at most @ bytes of data, and MUST fit", {KVR_WIRE_MAX_ITEM}},
	{"### 7.5", "fetch the blocks, at most @.", {KVR_WIRE_MAX_RESULT}},
	{"### 6.4", "several frames at most # bytes of these", {KVR_WIRE_SAID_MOST}},
	{"### 6.4", "when that is above @, bytes", {KVR_WIRE_ITEM_MOST}},
	{"## 15.",
	 "good for # to # minutes",
	 {(1ul << KVR_COOKIE_WINDOW_BITS) / 1000000000ul / 60,
	  (2ul << KVR_COOKIE_WINDOW_BITS) / 1000000000ul / 60}},
	{"## 2.", "* # fits 1,500-byte", {KVR_WIRE_DEF_FRAME}},
	{"## 2.", "; # = 9000 - 40 (IPv6) - 8 (UDP)", {KVR_WIRE_MAX_FRAME}},
	{"## 2.", "SHOULD be # if", {KVR_WIRE_MAX_FRAME}},
	{"## 3.", "`version` is not # |", {KVR_WIRE_VERSION}},
	{"## 3.",
	 "(kinds # to #, #, #)",
	 {KVR_ROUTE, KVR_ABORT_ACK, KVR_POTENTIAL_LOADS, KVR_LOADS}},
	{"## 3.",
	 "(kinds # to #, # to #)",
	 {KVR_HELLO, KVR_KV_ACK, KVR_SESSION_OPEN, KVR_SESSION_CLOSED}},
	{"## 3.", "release (#, #)", {KVR_SESSION_RELEASE, KVR_SESSION_RELEASED}},
	{"## 4.", "starts over with # ms at every MISSING", {CLIENT_ROUTE_US / MS}},
	{"### 5.1", "the client takes, #..# |", {KVR_WIRE_LEAST_MAX_FRAME, KVR_WIRE_MAX_FRAME}},
	{"### 5.1",
	 "`role` | # aggregated, # prefill, # decode",
	 {KVR_ROLE_AGGREGATED, KVR_ROLE_PREFILL, KVR_ROLE_DECODE}},
	{"### 6.1", "`phase` 0 to #;", {KVR_ROLE_DECODE}},
	{"### 6.1", "client accepts; 0 = #. R", {KVR_WIRE_DEF_FRAME}},
	{"### 6.2", "(`path` # and #,", {KVR_WAY_BOOTSTRAP, KVR_WAY_SYNC}},
	{"### 6.3", "row of # s is any", {KVR_WIRE_CLIENT_SILENCE_S}},
	{"### 6.3", "sent: END, else send CANCEL; again(# s)", {CLIENT_CANCEL_MAX_US / S}},
	{"### 6.3", "with RESEND; again(# s)", {CLIENT_ROUTE_MAX_US / S}},
	{"### 6.3",
	 "if asked: gap = min(gap, # s); again(# s); else again(# s)",
	 {CLIENT_NO_ANSWER_US / S, CLIENT_NO_ANSWER_US / S, CLIENT_PROBE_MAX_US / S}},
	{"### 6.3",
	 "with the first gap (# or # ms); no more than # requests a millisecond",
	 {CLIENT_ROUTE_US / MS, CLIENT_PROBE_US / MS, CLIENT_PACE_FRAMES}},
	{"### 6.3",
	 "SENT: gap = # ms; WAIT, STREAM: gap = # ms; timer, # requests",
	 {CLIENT_ROUTE_US / MS, CLIENT_PROBE_US / MS, CLIENT_PACE_FRAMES}},
	{"### 6.3",
	 "SENT: gap = # ms; again(# s); WAIT: news",
	 {CLIENT_ROUTE_US / MS, CLIENT_ROUTE_MAX_US / S}},
	{"### 7.2", "stop the timer; gap = # ms; send", {AGENT_REPEAT_US / MS}},
	{"### 7.5",
	 "the prefill pool, # | the decode pool, # |",
	 {KVR_ROLE_PREFILL, KVR_ROLE_DECODE}},
	{"### 9.1",
	 "`role`: # aggregated, # prefill, # decode",
	 {KVR_ROLE_AGGREGATED, KVR_ROLE_PREFILL, KVR_ROLE_DECODE}},
	{"### 9.1", "Bit 0x0# of `flags`: CPU", {KVR_HELLO_F_CPU}},
	{"### 9.2",
	 "# ms, doubling to # s) until it is answered",
	 {AGENT_HELLO_US / MS, AGENT_HELLO_MAX_US / S}},
	{"### 9.2", "given up after # s", {KVR_WIRE_ITEMS_KEPT_S}},
	{"## 10.", "| 0x000# PARENT;", {KVR_KV_EV_F_PARENT}},
	{"## 10.", "flag 0x000# (PARENT)", {KVR_KV_EV_F_PARENT}},
	{"## 10.", "flag 0x000# (DUMP)", {KVR_KV_F_DUMP}},
	{"## 10.", "has 0x000# (DUMP_BEGIN)", {KVR_KV_F_DUMP_BEGIN}},
	{"## 10.", "has 0x000# (DUMP_END)", {KVR_KV_F_DUMP_END}},
	{"## 10.",
	 "`tier`: # device, # host memory (pinned), # disk, # external",
	 {KVR_TIER_DEVICE, KVR_TIER_HOST, KVR_TIER_DISK, KVR_TIER_EXTERNAL}},
	{"## 10.", "same number within # ms", {AGENT_KV_REPEAT_US / MS}},
	{"## 10.", "`id` below 2^#", {__builtin_ctzll(AGENT_DUMP_ID)}},
	{"## 12.", "`version` of the header is # whatever", {KVR_WIRE_VERSION}},
	{"## 12.",
	 "| SourceLimit | what: # live requests, # waiting requests, # sessions |",
	 {KVR_QUOTA_REQUESTS, KVR_QUOTA_WAITING, KVR_QUOTA_SESSIONS}},
	{"## 12.", "a body of # bytes", {KVR_WIRE_REJECTED_LEAST}},
	{"## 13.", "chain is always #.", {KVR_HASH_SEED}},
	{"## 13.", "seed #): 16 bytes", {KVR_HASH_SEED}},
	{"## 17.", "give up after # s of silence", {KVR_WIRE_CLIENT_SILENCE_S}},
	{"## 17.", "keep them for # s", {KVR_WIRE_ITEMS_KEPT_S}},
};

static void prose_has_the_numbers_of_the_code(void)
{
	char text[200];

	for (size_t i = 0; i < RTE_DIM(prose); i++) {
		fill_numbers(prose[i].text, prose[i].v, text);
		CU_ASSERT_TRUE(is_in_section(prose[i].heading, text));
	}
}

/* A row of a table that is not generated: "| number | name |". */
static const struct row {
	const char *heading, *name;
	unsigned int v;
} rows[] = {
	{"### 6.2", "aggregated", KVR_WAY_AGGREGATED},
	{"### 6.2", "bootstrap", KVR_WAY_BOOTSTRAP},
	{"### 6.2", "sync", KVR_WAY_SYNC},
	{"### 6.2", "bypassed", KVR_WAY_BYPASSED},
	{"### 11.1", "open", KVR_ACTION_OPEN},
	{"### 11.1", "none", KVR_ACTION_NONE},
	{"### 11.1", "close", KVR_ACTION_CLOSE},
};

static bool has_row(const struct row *r)
{
	char text[60];

	snprintf(text, sizeof(text), "\n| %u | %s |", r->v, r->name);
	if (strstr(read_section(r->heading), text) != NULL)
		return true;
	fprintf(stderr, "no such row in section %s:%s\n", r->heading, text);
	return false;
}

static void tables_have_the_numbers_of_the_code(void)
{
	for (size_t i = 0; i < RTE_DIM(rows); i++)
		CU_ASSERT_TRUE(has_row(&rows[i]));
}

int main(int argc, char **argv)
{
	CU_TestInfo tests[] = {
		KVR_CASE(prose_has_the_numbers_of_the_code),
		KVR_CASE(tables_have_the_numbers_of_the_code),
		CU_TEST_INFO_NULL,
	};

	doc = argc == 2 ? document_read(argv[1]) : NULL;
	return doc != NULL ? kvr_test_run("numbers", tests) : 1;
}
