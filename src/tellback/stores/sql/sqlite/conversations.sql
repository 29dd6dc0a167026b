-- name: conversation_lock^
-- The writer's transaction is the lock.
SELECT status, last_seq, turns, summarized_turns, turn_id, running_turn, running_claim_id, running_until
FROM conversations
WHERE tenant_id = :tenant_id AND app_id = :app_id AND user_id = :user_id AND id = :id;
