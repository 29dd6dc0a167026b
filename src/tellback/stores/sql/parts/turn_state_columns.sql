id, status, last_seq, turns, summarized_turns, turn_id, running_turn, running_claim_id, running_until
