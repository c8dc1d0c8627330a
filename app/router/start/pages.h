/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_PAGES_H
#define ROUTER_PAGES_H

/**
 * @file
 * Transparent huge pages for the memory of an EAL that was started without huge pages: buffers,
 * requests, jobs and rings are a hundred megabytes that every turn touches somewhere else. Main
 * thread, after rte_eal_init() and before anything else has memory of the EAL.
 */

/**
 * Put memory of this process alone, with the wish for large pages, where the EAL's is, with what
 * the EAL has written there. Nothing changes where that is not possible. Other processes cannot map
 * it from then on, so not for an EAL that has secondary ones.
 */
void pages_wish(void);

#endif
