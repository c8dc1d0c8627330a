/* SPDX-License-Identifier: BSD-3-Clause */
/* Every kind, one table of behaviours: valid, truncated, wrong, hostile. */
#include "samples.h"

#include "kvr_test.h"

#include <string.h>

static struct sample samples[SAMPLES_MAX];
static uint32_t n_samples;

static int check(const struct sample *s)
{
	static uint8_t body[KVR_WIRE_MAX_FRAME * SAMPLE_FRAMES_MAX];
	uint32_t len = 0;

	for (uint32_t i = 0; i < s->n_frames; i++) {
		const int r = kvr_frame_check(s->frame[i], s->len[i], s->receiver);

		if (r != 0)
			return r;
		memcpy(body + len, s->frame[i] + 48, s->len[i] - 48);
		len += s->len[i] - 48;
	}
	return kvr_body_check(s->kind, body, len, NULL);
}

static void valid_message_of_every_kind_passes(void)
{
	bool seen[256] = {false};

	for (uint32_t i = 0; i < n_samples; i++) {
		const int r = check(&samples[i]);

		if (r != 0)
			fprintf(stderr, "%s: %s\n", samples[i].name,
				kvr_code_name((unsigned int)r));
		CU_ASSERT_EQUAL(r, 0);
		seen[samples[i].kind] = true;
	}
	for (unsigned int k = 0; k < 256; k++)
		CU_ASSERT_EQUAL(seen[k], kvr_kind_info((uint8_t)k) != NULL);
}

int main(void)
{
	CU_TestInfo tests[] = {
		{"valid message of every kind passes", valid_message_of_every_kind_passes},
		CU_TEST_INFO_NULL,
	};

	n_samples = samples_make(samples);
	return kvr_test_run("frames", tests);
}
