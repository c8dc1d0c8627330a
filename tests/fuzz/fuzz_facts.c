/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fuzz target: a page on which an engine describes itself. The first byte selects the page and
 * --type. For any content, the resulting options are in range, every endpoint is valid, and the log
 * line is text.
 */
#include "fuzz.h"

#include "facts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "endpoint.h"

#define REQUIRE(x)                                                                                 \
	do {                                                                                       \
		if (!(x))                                                                          \
			abort();                                                                   \
	} while (0)

static struct agent_facts f;
static struct agent_options o;

static void check_endpoints(const struct agent_options *given, bool replay)
{
	char text[2 * AGENT_ENDPOINT];

	for (uint32_t i = 0; i < 3; i++) {
		agent_facts_endpoint(&f, given, replay, i, text, sizeof(text));
		REQUIRE(strlen(text) < sizeof(text) - 1);
		REQUIRE(text[0] == '\0' || strncmp(text, "tcp://", 6) == 0 ||
			strncmp(text, "ipc://", 6) == 0);
		agent_endpoint_is(text, "10.0.0.1:5557", "10.0.0.1");
	}
}

static void check_line(const struct agent_options *given)
{
	char line[512];

	agent_facts_line(&f, given, line, sizeof(line));
	REQUIRE(strlen(line) < sizeof(line));
	for (const char *p = line; *p != '\0'; p++)
		REQUIRE(*p >= ' ' && *p <= '~');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct agent_options given = {.engine = "http://[::1]:8000",
					    .type = size > 0 ? data[0] >> 4 & 3 : 0,
					    .events = AGENT_AS_REPORTED,
					    .replay = AGENT_AS_REPORTED};
	const enum agent_page page = size > 0 ? (data[0] & 15) % AGENT_PAGES : 0;
	struct agent_prom prom;

	if (size == 0 || given.type > AGENT_AUTO)
		return 0;
	agent_facts_clear(&f, (enum agent_engine)given.type);
	if (page == AGENT_PAGE_METRICS) {
		agent_prom_read(&prom, (const char *)data + 1, size - 1);
		agent_facts_metrics(&f, &prom);
	} else {
		const int rc = agent_facts_read(&f, page, (const char *)data + 1, size - 1);

		REQUIRE(rc == 0 || rc == -EBADMSG);
	}
	REQUIRE((f.bad == 0) == (f.bad_row == 0));
	agent_facts_apply(&f, &given, &o);
	REQUIRE(o.ranks >= 1 && o.ranks <= AGENT_PROM_RANKS && o.block_size <= 4096);
	REQUIRE(o.type == AGENT_VLLM || o.type == AGENT_SGLANG);
	REQUIRE(agent_facts_blocks(&f, o.block_size) <= UINT32_MAX);
	check_endpoints(&given, false);
	check_endpoints(&given, true);
	check_line(&given);
	return 0;
}
