/* SPDX-License-Identifier: BSD-3-Clause */
/* Tables of counters: each counter of the router is exported in one family of metrics. */
#include "telemetry/tables.h"

#include <string.h>

#include "kvr_families.h"
#include "kvr_test.h"

static void every_counter_is_in_one_family(void)
{
	const struct table *t;
	uint32_t n = 0;

	for (; (t = table_at(n)) != NULL; n++) {
		const char *wrong = families_check(t->def, t->families);

		if (wrong != NULL)
			printf("table %s: %s\n", t->def->lib, wrong);
		CU_ASSERT_PTR_NULL(wrong);
	}
	CU_ASSERT(n >= 16);
}

static void no_family_is_of_two_tables(void)
{
	const struct table *a, *b;

	for (uint32_t i = 0; (a = table_at(i)) != NULL; i++)
		for (uint32_t k = 0; k < i && (b = table_at(k)) != NULL; k++)
			for (const struct kvr_family *f = a->families; f->name != NULL; f++)
				for (const struct kvr_family *g = b->families; g->name != NULL; g++)
					CU_ASSERT_STRING_NOT_EQUAL(f->name, g->name);
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(every_counter_is_in_one_family),
		KVR_CASE(no_family_is_of_two_tables),
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("tables", tests);
}
