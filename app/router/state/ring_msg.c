/* SPDX-License-Identifier: BSD-3-Clause */
/* Names and owned parts of the messages to a scheduler. */
#include "state/ring_msg.h"

const struct sched_msg_info sched_msg_types[MSG_TYPES] = {
#define MSG_ROW(type, name, part) [type] = {name, part},
	MSG_LIST(MSG_ROW)
#undef MSG_ROW
};
