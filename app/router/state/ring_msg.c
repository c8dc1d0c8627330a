/* SPDX-License-Identifier: BSD-3-Clause */
#include "state/ring_msg.h"

const struct note_info note_types[NOTE_TYPES] = {
#define NOTE_ROW(type, name, part) [type] = {name, part},
	NOTE_LIST(NOTE_ROW)
#undef NOTE_ROW
};
