/* SPDX-License-Identifier: BSD-3-Clause */
/* The router's table of kinds against that of the protocol. */
#include "ingress/ingress.h"
#include "kvr_frame.h"
#include "kvr_test.h"
#include "lcore/frame_kind.h"

static bool for_us(uint8_t kind)
{
	const struct kvr_kind_info *k = kvr_kind_info(kind);

	return k != NULL && (k->to & KVR_ROLE_BIT_ROUTER) != 0;
}

static void a_kind_is_served_if_a_role_may_send_it(void)
{
	uint32_t n = 0;

	for (unsigned int i = 0; i < KVR_WIRE_KIND_MAX; i++) {
		CU_ASSERT_EQUAL(frame_kinds[i].ingress != NULL, for_us((uint8_t)i));
		if ((frame_kinds[i].ingress != NULL) != for_us((uint8_t)i))
			printf("%s ", kvr_wire_kind_name((uint8_t)i));
		n += frame_kinds[i].ingress != NULL;
	}
	CU_ASSERT(n > 10);
}

static void what_control_gets_control_serves(void)
{
	for (unsigned int i = 0; i < KVR_WIRE_KIND_MAX; i++) {
		const struct frame_kind *k = &frame_kinds[i];

		CU_ASSERT_EQUAL(k->control != NULL,
				k->ingress == ingress_to_control || k->ingress == ingress_hello);
		/* A sender that is rejected there gets an answer. */
		CU_ASSERT(k->control == NULL || kvr_kind_info((uint8_t)i)->answerable);
	}
}

static void only_what_may_come_in_fragments_is_checked_later(void)
{
	for (unsigned int i = 0; i < KVR_WIRE_KIND_MAX; i++)
		/* The fragments of an item pass without being joined: the first one is checked. */
		if (frame_kinds[i].ingress != NULL)
			CU_ASSERT_EQUAL(frame_kinds[i].in_parts,
					kvr_kind_info((uint8_t)i)->fragmentable &&
						i != KVR_RESPONSE);
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(a_kind_is_served_if_a_role_may_send_it),
			       KVR_CASE(what_control_gets_control_serves),
			       KVR_CASE(only_what_may_come_in_fragments_is_checked_later),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("kinds", tests);
}
