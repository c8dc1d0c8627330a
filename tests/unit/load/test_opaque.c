/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_test.h"
#include "opaque.h"

#include <string.h>

static struct load_transfer sealed_transfer(void)
{
	struct load_transfer t = {.source = 1,
				  .id = 2,
				  .worker = 3,
				  .room = 4,
				  .last = 5,
				  .dp_rank = 6,
				  .n_blocks = 7};

	load_transfer_seal(&t);
	return t;
}

static void every_byte_of_a_result_counts(void)
{
	const struct load_transfer want = sealed_transfer();
	uint8_t got[sizeof(want)];

	memcpy(got, &want, sizeof(got));
	CU_ASSERT_TRUE(load_transfer_is(got, sizeof(got), &want));
	CU_ASSERT_FALSE(load_transfer_is(got, sizeof(got) - 1, &want));
	for (size_t i = 0; i < sizeof(got); i++) {
		got[i] ^= 0x10;
		CU_ASSERT_FALSE(load_transfer_is(got, sizeof(got), &want));
		got[i] ^= 0x10;
	}
}

static void the_sum_covers_every_field_and_its_place(void)
{
	struct load_transfer t = sealed_transfer(), u = t;

	u.id = t.worker;
	u.worker = t.id;
	CU_ASSERT_NOT_EQUAL(load_transfer_sum(&u), t.sum);
	u = t;
	u.n_blocks++;
	CU_ASSERT_NOT_EQUAL(load_transfer_sum(&u), t.sum);
	u = t;
	u.sum++;
	CU_ASSERT_EQUAL(load_transfer_sum(&u), t.sum);
}

static void a_room_names_its_rank(void)
{
	CU_ASSERT_TRUE(load_room_fits(14, 2, 4));
	CU_ASSERT_FALSE(load_room_fits(15, 2, 4));
	CU_ASSERT_TRUE(load_room_fits(7, 0, 1));
	CU_ASSERT_FALSE(load_room_fits((1ull << 63) + 2, 2, 4));
}

static void a_session_name_gives_its_number(void)
{
	const uint64_t tag = 0x00ab00cd00ef0012u;
	char name[LOAD_SESSION_NAME];

	for (uint64_t n = 1; n != 0; n <<= 1) {
		load_session_name(name, tag, n);
		CU_ASSERT_EQUAL(load_session_number(name, (uint32_t)strlen(name), tag), n);
		CU_ASSERT_EQUAL(load_session_number(name, (uint32_t)strlen(name), tag + 1), 0);
	}
	load_session_name(name, tag, 0x12);
	CU_ASSERT_EQUAL(load_session_number(name, 16, tag), 0);
	name[18] = 'x';
	CU_ASSERT_EQUAL(load_session_number(name, (uint32_t)strlen(name), tag), 0);
	CU_ASSERT_EQUAL(load_session_number("", 0, tag), 0);
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(every_byte_of_a_result_counts),
		KVR_CASE(the_sum_covers_every_field_and_its_place),
		KVR_CASE(a_room_names_its_rank),
		KVR_CASE(a_session_name_gives_its_number),
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("marks", tests);
}
