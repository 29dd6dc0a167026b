-- name: conversation_lock^
SELECT {turn_state_columns}
FROM conversations
WHERE tenant_id = :tenant_id AND app_id = :app_id AND user_id = :user_id AND id = :id
FOR NO KEY UPDATE;
